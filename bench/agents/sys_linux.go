package agents

import "syscall"

// childAttr makes a child end with this process.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
