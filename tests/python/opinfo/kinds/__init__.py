"""The kinds of test: each asks something of one sample, and says what it did and where the device differs."""
