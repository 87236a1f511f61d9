// Package env declares the seams between Millrace and the world: clock, files, network, randomness and other programs.
// The real forms of all but the second are here; files come from package store, which adapts the file system beneath the
// database, so that one crash in a test hits everything durable at one instant.
//
// No other package of internal reads a clock, opens a file, dials, draws random numbers or starts a process by itself;
// internal/lint holds that.
package env

import (
	"context"
	crand "crypto/rand"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Clock tells time and wakes callers.
type Clock interface {
	// Wall is the wall clock: only for stamping times that people read, and for the first stamp of a term.
	Wall() time.Time
	// Boot is the time since an arbitrary instant that never falls and counts suspension: the progress of leases.
	Boot() time.Duration
	// NewTimer returns a timer that fires once after d.
	NewTimer(d time.Duration) Timer
}

// Timer fires once on C. Stop and Reset as time.Timer of Go 1.23 and later: no stale value is left behind.
type Timer interface {
	C() <-chan time.Time
	Stop() bool
	Reset(d time.Duration) bool
}

// FS is the file system beneath all that is durable. Paths are the host's.
type FS interface {
	// Create makes an empty file for writing, replacing one of that name.
	Create(name string) (File, error)
	// Open opens for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens for reading and writing at offsets; it makes the file if absent.
	OpenReadWrite(name string) (File, error)
	// OpenDir opens a directory; Sync of it makes its entries durable.
	OpenDir(name string) (File, error)
	Remove(name string) error
	Rename(from, to string) error
	// Link gives a file a second name; it fails, with errors.Is(err, fs.ErrExist), if that is taken.
	Link(from, to string) error
	MkdirAll(dir string) error
	// Lock takes an exclusive lock on a file that it makes; it fails while another process, or this one, holds it.
	Lock(name string) (io.Closer, error)
	// List returns the names in a directory, in no order.
	List(dir string) ([]string, error)
	// Size returns the length of a file in bytes. The error of a missing file satisfies errors.Is(err, fs.ErrNotExist).
	Size(name string) (int64, error)
	// Stamp tells one content of a file from another, without reading it. It follows symbolic links. The error of a missing file
	// satisfies errors.Is(err, fs.ErrNotExist).
	Stamp(name string) (Stamp, error)
	// Disk returns the bytes that can still be written to the file system of path, and the size of that file system.
	Disk(path string) (free, total uint64, err error)
}

// Stamp is what a file system says of a file: while it is the same, so is the content, as a rule. It differs after a write, and
// after another file was put in its place.
type Stamp struct {
	Size     int64
	Modified time.Time // of the content
	Changed  time.Time // of the content, the name or the mode; zero where the file system cannot tell
	Device   uint64    // with Inode the file that the name leads to; both zero where that is not known
	Inode    uint64
}

// File is one open file. Write appends at the file's own position.
type File interface {
	io.Writer
	io.ReaderAt
	io.WriterAt // only after OpenReadWrite
	// Preallocate reserves room without changing the content; it may do nothing.
	Preallocate(offset, length int64) error
	// Sync makes content and length durable.
	Sync() error
	// SyncData makes content durable, and the length if it is needed to read the content back (fdatasync).
	SyncData() error
	Close() error
}

// Net opens connections.
type Net interface {
	Dial(ctx context.Context, address string) (net.Conn, error)
	Listen(address string) (net.Listener, error)
}

// Rand is a source of random numbers, safe for concurrent use.
type Rand interface {
	Uint64() uint64
	// Fill fills b with random bytes.
	Fill(b []byte)
}

// SystemClock is the machine's clock.
type SystemClock struct{}

// Wall returns the wall clock's time.
func (SystemClock) Wall() time.Time { return time.Now() }

// NewTimer returns a timer of package time.
func (SystemClock) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

// systemTimer is a time.Timer behind the interface.
type systemTimer struct{ t *time.Timer }

func (t systemTimer) C() <-chan time.Time        { return t.t.C }
func (t systemTimer) Stop() bool                 { return t.t.Stop() }
func (t systemTimer) Reset(d time.Duration) bool { return t.t.Reset(d) }

// SystemNet is TCP.
type SystemNet struct{}

// Dial connects by TCP.
func (SystemNet) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Listen listens on TCP.
func (SystemNet) Listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

// SystemRand draws from the operating system.
type SystemRand struct{}

// Uint64 returns 64 random bits.
func (SystemRand) Uint64() uint64 { return rand.Uint64() }

// Fill fills b from the operating system's source, fit for secrets.
func (SystemRand) Fill(b []byte) {
	_, _ = crand.Read(b) // documented never to fail
}

// SeededRand is a deterministic source for tests.
type SeededRand struct {
	mu  sync.Mutex // guards src
	src *rand.ChaCha8
}

// NewSeededRand returns a source that is the same for equal seeds.
func NewSeededRand(seed uint64) *SeededRand {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return &SeededRand{src: rand.NewChaCha8(key)}
}

// Uint64 returns the next 64 bits.
func (r *SeededRand) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.src.Uint64()
}

// Fill fills b with the next bytes.
func (r *SeededRand) Fill(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.src.Read(b) // documented never to fail
}
