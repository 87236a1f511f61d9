// Package vector keeps rows of vectors and finds the nearest of them: dot products of 8-bit codes in assembly, rows in
// chunks that never move, scans with a bounded best-of list, and a navigable graph for large collections.
//
// A row is kept twice: as float32, which gives every score that leaves the process, and as one signed byte per number
// with a scale per row, which only chooses candidates. All kernels give the same integers, so that a choice of
// candidates does not depend on the machine; float32 sums differ in their last bits (DESIGN.md says by how much).
//
// The package knows no storage, tenant or clock and starts no goroutine. Rows and Graph are appended to by one caller at
// a time; a View stays valid and unchanged meanwhile. Who may see a row is the caller's business: every search takes the
// rows that count.
package vector
