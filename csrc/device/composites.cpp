// Dropout, recurrent networks and the choice among attention kernels.
#include "device/composites.h"

namespace flagos {

void register_composites() {}

}  // namespace flagos
