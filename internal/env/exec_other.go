//go:build !linux

package env

import "syscall"

// CanRestrict reports whether this system holds programs to their Reach.
func CanRestrict() bool { return false }

func confine(*Reach) error { return nil }

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit does nothing: these systems cannot bound another process, and stand in for Linux on developers' machines only.
func limit(int, Command) error { return nil }
