// An owned file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace flagos {

/// Closes its descriptor when it goes; -1 stands for none. Movable. Not thread-safe.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  int number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

  void reset() {
    if (number_ >= 0) {
      ::close(number_);  // Linux frees the number whatever it returns
      number_ = -1;
    }
  }

 private:
  int number_ = -1;
};

}  // namespace flagos
