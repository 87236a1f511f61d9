//go:build !linux

package agents

import "syscall"

// childAttr asks for nothing: that a child ends with its parent is Linux's alone.
func childAttr() *syscall.SysProcAttr { return nil }
