package store

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
)

// FormatVersion is the format of the data directory that this build writes, and the newest it understands.
const FormatVersion = 1

// Names in a data directory. The log and the store have a directory each, named by their users: wal and store.
const (
	// lockName is the file whose lock a user of the directory holds.
	lockName = "LOCK"
	// identityName has the identity. A directory without it is not in use yet.
	identityName = "IDENTITY"
	// identityTemp is an identity until it is durable; then it is renamed.
	identityTemp = "IDENTITY.tmp"
	// ballastName holds room back; see ReserveBallast.
	ballastName = "BALLAST"
)

// ErrLocked says that another process, or another part of this one, uses the data directory.
var ErrLocked = errors.New("data directory is in use")

// ErrForeign says that a directory holds something that is not Millrace's.
var ErrForeign = errors.New("directory is not empty and has no " + identityName + ": not a Millrace data directory")

// ErrNoData says that there is no data directory yet.
var ErrNoData = errors.New("no Millrace data directory")

// NewerFormatError says that a data directory was written by a newer build. Nothing in it was changed.
type NewerFormatError struct{ Found, Supported int }

// Error names both formats.
func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("data directory has format %d; this build knows formats up to %d", e.Found, e.Supported)
}

// Identity says whose a data directory is.
type Identity struct {
	Format  int       `json:"format"`
	Node    string    `json:"node"`    // 16 hexadecimal digits, drawn when the directory was made
	Cluster string    `json:"cluster"` // likewise
	Created time.Time `json:"created"`
}

// stored is the content of the identity file. The checksum covers the text of the identity.
type stored struct {
	Identity json.RawMessage `json:"identity"`
	CRC32C   string          `json:"crc32c"` // 8 hexadecimal digits
}

// Dir is a data directory in use.
type Dir struct {
	fs env.FS
	// path is where the directory is.
	path string
	id   Identity
	// lock is held until Close, or until the process ends.
	lock io.Closer
}

// OpenDir takes a data directory into use: it makes one where there is none, or an empty one, and
// takes its lock. created is recorded in a new one. Errors: ErrLocked; ErrForeign;
// *UnfinishedError; *NewerFormatError; *errs.Corruption of its identity. If the process dies before
// the identity has its name, nothing has used the directory yet, and the next start draws another
// identity.
func OpenDir(fsys env.FS, path string, rnd env.Rand, created time.Time) (*Dir, error) {
	// Looked at before anything is made, so that a directory which is refused stays as it is.
	if _, err := ReadDir(fsys, path); err != nil && !errors.Is(err, ErrNoData) {
		return nil, err
	}
	if err := env.MakeDirs(fsys, path); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := fsys.Lock(filepath.Join(path, lockName))
	if err != nil {
		return nil, lockError(path, err)
	}
	d := &Dir{fs: fsys, path: path, lock: lock}
	d.id, err = ReadDir(fsys, path)
	if errors.Is(err, ErrNoData) {
		d.id, err = writeIdentity(fsys, path, rnd, created)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// lockError tells a directory that is in use from one whose lock file cannot be opened, because of its permissions, say.
func lockError(path string, err error) error {
	if open, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("lock data directory: %w", open)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok && (errno == syscall.EAGAIN || errno == syscall.EACCES) {
		if pid := env.LockHolder(filepath.Join(path, lockName)); pid != 0 {
			return fmt.Errorf("%w: %s: by process %d", ErrLocked, path, pid)
		}
	} else if ok {
		return fmt.Errorf("lock data directory: %s: %w", filepath.Join(path, lockName), err) // the file system has no locks, say
	}
	return fmt.Errorf("%w: %s: %w", ErrLocked, path, err)
}

// ReadDir reads whose a data directory is, without taking it into use. Errors: as OpenDir, and ErrNoData.
func ReadDir(fsys env.FS, path string) (Identity, error) {
	names, err := fsys.List(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, fmt.Errorf("%w: %s", ErrNoData, path)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("list data directory: %w", err)
	}
	if err := readUnfinished(fsys, path, names); err != nil {
		return Identity{}, err
	}
	if slices.Contains(names, identityName) {
		return readIdentity(fsys, filepath.Join(path, identityName))
	}
	for _, name := range names {
		switch name {
		case lockName, identityTemp, "lost+found": // left by a start that ended early, or by the making of a file system
		default:
			return Identity{}, fmt.Errorf("%w: %s", ErrForeign, path)
		}
	}
	return Identity{}, fmt.Errorf("%w: %s", ErrNoData, path)
}

// Identity says whose the directory is.
func (d *Dir) Identity() Identity { return d.id }

// Path returns where the directory is.
func (d *Dir) Path() string { return d.path }

// Close gives the directory up.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("unlock data directory: %w", err)
	}
	return nil
}

// maxIdentity bounds an identity file; one is about 200 bytes.
const maxIdentity = 64 << 10

// readIdentity reads an identity. It refuses one that is damaged, incomplete or of a newer format.
func readIdentity(fsys env.FS, name string) (id Identity, err error) {
	b, err := env.ReadFile(fsys, name, maxIdentity)
	if err != nil {
		return id, fmt.Errorf("read %s: %w", name, err)
	}
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return id, errs.Corruptf("%s: %v", name, err)
	}
	if sum := checksum(s.Identity); sum != s.CRC32C {
		return id, errs.Corruptf("%s: checksum %s, content has %s", name, s.CRC32C, sum)
	}
	// The format comes first: what else a newer one holds is not for this build to judge.
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(s.Identity, &head); err != nil {
		return id, errs.Corruptf("%s: %v", name, err)
	}
	if head.Format > FormatVersion {
		return id, &NewerFormatError{Found: head.Format, Supported: FormatVersion}
	}
	if err := json.Unmarshal(s.Identity, &id); err != nil {
		return id, errs.Corruptf("%s: %v", name, err)
	}
	if id.Format < 1 || len(id.Node) != 16 || len(id.Cluster) != 16 {
		return id, errs.Corruptf("%s: incomplete: %s", name, s.Identity)
	}
	return id, nil
}

// checksum returns the CRC-32C of b as 8 hexadecimal digits.
func checksum(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// writeIdentity makes an identity durable under a temporary name, and then gives it its own.
func writeIdentity(fsys env.FS, path string, rnd env.Rand, created time.Time) (Identity, error) {
	id := Identity{Format: FormatVersion, Node: draw(rnd), Cluster: draw(rnd), Created: created.UTC().Truncate(time.Millisecond)}
	text, err := json.Marshal(id)
	if err != nil {
		return id, fmt.Errorf("encode identity: %w", err)
	}
	text, err = json.Marshal(stored{Identity: text, CRC32C: checksum(text)})
	if err != nil {
		return id, fmt.Errorf("encode identity: %w", err)
	}
	temp := filepath.Join(path, identityTemp)
	if err := writeFile(fsys, temp, append(text, '\n')); err != nil {
		return id, fmt.Errorf("write %s: %w", temp, err)
	}
	name := filepath.Join(path, identityName)
	if err := fsys.Rename(temp, name); err != nil {
		return id, fmt.Errorf("write %s: %w", name, err)
	}
	if err := env.SyncDir(fsys, path); err != nil {
		return id, fmt.Errorf("sync %s: %w", path, err)
	}
	return id, nil
}

// writeFile makes a file with the given content durable. Its name in the directory is the caller's
// to sync.
func writeFile(fsys env.FS, name string, b []byte) (err error) {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}

// draw returns 64 random bits as 16 hexadecimal digits.
func draw(rnd env.Rand) string {
	var b [8]byte
	rnd.Fill(b[:])
	return hex.EncodeToString(b[:])
}
