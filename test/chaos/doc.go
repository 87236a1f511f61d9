// Package chaos holds the tests that kill and pause real processes: the binary of this repository, under clients of its
// own SDK, on loopback, without root: one server, or a cluster of three that speak mutual TLS, on whose links proxies stand
// where a row cuts them. Rows about disks put data on a disk of their own, and are not run where nothing can be mounted. Other
// rows damage what a log has written, in the process of the test, because they try each place of it.
//
// Its tests make a few runs of each fault row; `go run ./test/chaos/run` makes pieces of campaigns, whose counts add up
// in results. A failed run keeps its ledgers, log and data, and says where.
package chaos
