//go:build !linux

package env

import "syscall"

func ownThread() (unlock func()) { return func() {} }

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// limit does nothing: these systems cannot bound another process, and stand in for Linux on developers' machines only.
func limit(int, Limits) error { return nil }
