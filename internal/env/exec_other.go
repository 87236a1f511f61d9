//go:build !linux

package env

import "syscall"

// CanRestrict reports whether this system holds programs to their Reach.
func CanRestrict() bool { return false }

// confine does nothing: these systems have no means to restrict a thread to directories.
func confine(*Reach) error { return nil }

// processAttributes puts a child into a group of its own. Nothing ends the child when this process
// dies.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit does nothing: these systems cannot bound another process, and stand in for Linux on developers' machines only.
func limit(int, Command) error { return nil }
