package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Kind names one profile; its file is the kind with FileSuffix.
type Kind string

// The kinds of profile that every process has.
const (
	CPU       Kind = "cpu"
	Alloc     Kind = "alloc"     // bytes allocated in the window
	Heap      Kind = "heap"      // live after a collection at the end
	Block     Kind = "block"     // waits in the window
	Mutex     Kind = "mutex"     // waits for locks in the window
	Goroutine Kind = "goroutine" // at the end
)

// Leak is the profile of goroutines that wait for what cannot come; only some builds of Go have it.
const Leak Kind = "goroutineleak"

// FileSuffix ends the name of every profile's file.
const FileSuffix = ".pb.gz"

// Kinds lists the six that every process has, in the order of reports.
func Kinds() []Kind { return []Kind{CPU, Alloc, Heap, Block, Mutex, Goroutine} }

// Set is what was taken of one process. Files has the gzipped profiles by kind.
type Set struct {
	Process string // "server-1", "driver"
	// Driver says that it is the load generator: what it shows is not a fault of the measured system.
	Driver bool
	Window time.Duration // length of the window
	Procs  int           // GOMAXPROCS of the process
	// Start is the number of goroutines before the window.
	Start int
	Files map[Kind][]byte
}

// Write stores the profiles as KIND.pb.gz in dir, which it makes, and returns their paths in the order of Kinds.
func (s *Set) Write(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var paths []string
	for _, k := range append(Kinds(), Leak) {
		b, ok := s.Files[k]
		if !ok {
			continue
		}
		path := filepath.Join(dir, string(k)+FileSuffix)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Read fills s.Files from the files that Write left in dir. One of the six that is missing is an error.
func (s *Set) Read(dir string) error {
	s.Files = make(map[Kind][]byte)
	for _, k := range append(Kinds(), Leak) {
		b, err := os.ReadFile(filepath.Join(dir, string(k)+FileSuffix))
		if k == Leak && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("profile %s: %w", k, err)
		}
		s.Files[k] = b
	}
	return nil
}
