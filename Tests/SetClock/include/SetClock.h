/*
 * A library that is loaded into a program (LD_PRELOAD) and sets its wall clock forward or back, as an operator or a
 * time server may do. The monotonic clock goes on as it is.
 *
 * HOLDFAST_CLOCK_CONTROL names a file of 8 bytes: the seconds to add, a signed number in the machine's order, which
 * may change at any moment.
 */
