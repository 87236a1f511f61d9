//go:build !linux

package main

import (
	"os"
	"syscall"
)

// selfPath is the file of this program. Unlike on Linux, a file that was replaced since is started
// in its new version.
var selfPath, _ = os.Executable()

// childAttributes puts a command in a process group of its own. Only Linux ends it with a supervisor that was killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// keepOrphans, hideMemory, children, ticks and withVariables are Linux's: elsewhere what leaves its process group is not ended.
func keepOrphans() {}

// hideMemory does nothing here.
func hideMemory() {}

// children knows of no processes here.
func children(int) []int { return nil }

// ticks is 0: there is no clock of processes to read here.
func ticks() uint64 { return 0 }

// withVariables finds no processes here.
func withVariables(uint64, ...string) (found []int, unclear bool) { return nil, false }
