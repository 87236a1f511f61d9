//go:build faults

package fault

import "sync/atomic"

// Enabled says whether this build can plant faults.
const Enabled = true

var hook atomic.Pointer[func(name string) error]

// Set installs the function that decides what happens at each point; nil removes it.
func Set(f func(name string) error) {
	if f == nil {
		hook.Store(nil)
		return
	}
	hook.Store(&f)
}

// Point returns the fault planted at name, if any. Names are package.event, such as wal.synced.
func Point(name string) error {
	if f := hook.Load(); f != nil {
		return (*f)(name)
	}
	return nil
}
