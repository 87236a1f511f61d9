// Package e2e runs the real binary from its start to its end: few tests, each a story that a user would tell.
package e2e
