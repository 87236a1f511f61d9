//go:build !linux

package main

import "syscall"

// childAttributes puts a command in a process group of its own. Only Linux ends it with a worker that was killed.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
