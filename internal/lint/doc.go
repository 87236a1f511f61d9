// Package lint holds the repository's own rules as checks over its source, run by this package's tests.
//
// Each rule is a function from a source tree to findings, so that a test can plant a violation in a tree of its own and
// see it caught. The tree is read file by file, whatever a file's build tags say: `go list` would hide files of other
// systems, and a test that only asks a child process stays cached after the source has changed.
//
// What may import what stands in imports.txt, with the reason for a row after its #. Which libraries and calls are kept
// to which packages stands in libraries.go, calls.go and replay.go; what must be given back by defer, and where, in
// giveback.go; reasons for long files and functions in sizes.txt. Tables of tests are with the scripts that read them.
// What is elsewhere: formatting, vet and general analysis are `make lint`, style without a check is STYLE.md.
package lint
