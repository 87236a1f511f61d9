//go:build !linux

package bench

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// began stands for the start of the process.
var began = time.Now()

// childAttr keeps the terminal's Ctrl-C to this process.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// systemClocks are those that Go has everywhere: time asleep is not seen.
type systemClocks struct{}

// Realtime is the wall clock.
func (systemClocks) Realtime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// Monotonic counts from the start of the process.
func (systemClocks) Monotonic() time.Duration { return time.Since(began) }

// Boottime is Monotonic here.
func (systemClocks) Boottime() time.Duration { return time.Since(began) }

func systemObserver() Observer { return nil }

func fdatasync(f *os.File) error { return f.Sync() }

func free(string) (uint64, error) { return 0, errors.New("not known on this system") }

func fileSystem(string) string { return "unknown" }
