//go:build !linux

package server

import "github.com/millrace/millrace/internal/env"

// machineMemory returns a modest guess where the machine is not asked.
func machineMemory(env.FS) int64 { return 16 * minMemory }

// residentMemory returns 0: the system is not asked.
func residentMemory() uint64 { return 0 }
