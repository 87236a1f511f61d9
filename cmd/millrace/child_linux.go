package main

import "syscall"

// childAttributes puts a command in a process group of its own, and has the kernel kill it when the thread that started
// it ends, as every thread does with this process, however it dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
