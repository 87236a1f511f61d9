package backup_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// places are where a backup can lie: a directory, and one file.
var places = []string{"kept/monday", "kept/monday.tar"}

func newDisk(t *testing.T) *replogtest.Disk {
	t.Helper()
	disk := replogtest.NewDisk()
	noErr(t, env.MakeDirs(disk, "kept"))
	return disk
}

func TestABackupReadsBackAndIsRestored(t *testing.T) {
	o := newOrigin(t)
	for _, place := range places {
		disk := newDisk(t)
		made := o.take(disk, place)
		after := disk.Crash(0, 1) // a backup that was reported is durable
		b := openBackup(t, after, place)
		verifies(t, b)
		if fmt.Sprint(b.Manifest) != fmt.Sprint(made) || b.Manifest.Cluster != head.Cluster || b.Manifest.Started.UnixMilli() != head.StartedMillis {
			t.Errorf("%s: read %+v, made %+v", place, b.Manifest, made)
		}
		before := tree(t, after, "kept")
		r, err := b.Restore("data", restoreOptions(after))
		noErr(t, err)
		if len(r.Shards) != shards || r.Shards[2].Index != 4 || r.Shards[2].Begin != 5 || r.Identity.Cluster == "" {
			t.Errorf("%s: restored %+v", place, r)
		}
		auditRestored(t, after.Crash(0, 2), "data")
		if !same(before, tree(t, after, "kept")) {
			t.Errorf("%s: the backup was changed", place)
		}
	}
}

func TestABackupThatWasCutIsNoneAndIsBegunAnew(t *testing.T) {
	o := newOrigin(t)
	for _, place := range places {
		disk := newDisk(t)
		w, err := backup.Create(disk, place)
		noErr(t, err)
		noErr(t, o.send(w))
		cut := disk.Crash(100, 3) // before Finish
		if _, err := backup.Open(cut, place); !errors.Is(err, backup.ErrIncomplete) {
			t.Errorf("%s: what was cut opens with %v", place, err)
		}
		o.take(cut, place)
		verifies(t, openBackup(t, cut, place))
		w.Abort()
		if left := tree(t, disk, "kept"); len(left) > 0 {
			t.Errorf("%s: a backup that was given up leaves %d files", place, len(left))
		}
	}
}

func TestABackupIsMadeInThePlaceOfNothing(t *testing.T) {
	o := newOrigin(t)
	for _, place := range places {
		disk := newDisk(t)
		o.take(disk, place)
		before := tree(t, disk, "kept")
		if _, err := backup.Create(disk, place); !errors.Is(err, backup.ErrExists) {
			t.Errorf("%s: a second backup: %v", place, err)
		}
		if !same(before, tree(t, disk, "kept")) {
			t.Errorf("%s was changed", place)
		}
	}
	disk := newDisk(t)
	noErr(t, replogtest.WriteFile(disk, "kept/letter", []byte("dear")))
	if _, err := backup.Create(disk, "kept"); !errors.Is(err, backup.ErrExists) {
		t.Errorf("among other files: %v", err)
	}
	for _, path := range []string{"kept", "nowhere"} {
		if _, err := backup.Open(disk, path); !errors.Is(err, backup.ErrNone) {
			t.Errorf("open %s: %v", path, err)
		}
	}
}

// What a server sends is held to its own description.
func TestAnAnswerThatMakesNoSenseBecomesNoBackup(t *testing.T) {
	o := newOrigin(t)
	sh, err := o.st.Shard(0)
	noErr(t, err)
	snap, err := sh.Export("exported")
	noErr(t, err)
	content, err := replogtest.ReadFile(o.disk, "exported/000001.sst")
	noErr(t, err)
	description := snap.Append(nil)
	one := head
	one.Shards = 1
	wrong := append([]byte{}, content...)
	wrong[0] ^= 1
	steps := map[string]func(w *backup.Writer) error{
		"no head":         func(w *backup.Writer) error { return w.Shard(description) },
		"two heads":       func(w *backup.Writer) error { return errors.Join(w.Head(one), w.Head(one)) },
		"no shards":       func(w *backup.Writer) error { return w.Head(backup.Head{}) },
		"a damaged shard": func(w *backup.Writer) error { return errors.Join(w.Head(one), w.Shard(description[1:])) },
		"a shard twice": func(w *backup.Writer) error {
			return errors.Join(w.Head(head), w.Shard(description), w.Data(content), w.Shard(description))
		},
		"bytes of nothing": func(w *backup.Writer) error { return errors.Join(w.Head(one), w.Data(content)) },
		"too many bytes": func(w *backup.Writer) error {
			return errors.Join(w.Head(one), w.Shard(description), w.Data(append(content, 0)))
		},
		"other bytes": func(w *backup.Writer) error { return errors.Join(w.Head(one), w.Shard(description), w.Data(wrong)) },
		"an early end": func(w *backup.Writer) error {
			_, err := w.Finish()
			return errors.Join(w.Head(one), w.Shard(description), w.Data(content[:9]), err)
		},
		"a shard too few": func(w *backup.Writer) error {
			err := errors.Join(w.Head(head), w.Shard(description), w.Data(content))
			_, end := w.Finish()
			return errors.Join(err, end)
		},
	}
	for name, step := range steps {
		disk := newDisk(t)
		w, err := backup.Create(disk, "kept/b")
		noErr(t, err)
		var c *errs.Corruption
		if err := step(w); !errors.As(err, &c) {
			t.Errorf("%s: %v", name, err)
		}
		w.Abort()
		if left := tree(t, disk, "kept"); len(left) > 0 {
			t.Errorf("%s: %d files are left", name, len(left))
		}
	}
}

func TestAFullDiskEndsABackupAndLeavesNothing(t *testing.T) {
	o := newOrigin(t)
	for _, place := range places {
		for quota := int64(200); quota < 120_000; quota += 1700 + quota/4 {
			disk := newDisk(t)
			small := replogtest.NewFaulty(disk)
			small.SetQuota(quota)
			w, err := backup.Create(small, place)
			if err == nil {
				if err = o.send(w); err == nil {
					_, err = w.Finish()
				}
				w.Abort()
			}
			if err == nil {
				verifies(t, openBackup(t, disk, place))
				continue
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s in %d bytes: %v", place, quota, err)
			}
			if left := tree(t, disk, "kept"); len(left) > 0 {
				t.Errorf("%s in %d bytes: %d files are left", place, quota, len(left))
			}
		}
	}
}

func TestADirectoryThatIsNotEmptyIsNotRestoredInto(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b")
	b := openBackup(t, disk, "kept/b")
	noErr(t, disk.MkdirAll("data"))
	noErr(t, replogtest.WriteFile(disk, "data/letter", []byte("dear")))
	before := tree(t, disk, ".")
	if _, err := b.Restore("data", restoreOptions(disk)); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("over a letter: %v", err)
	}
	if _, err := b.Restore("kept/b", restoreOptions(disk)); !errors.Is(err, store.ErrNotEmpty) {
		t.Errorf("over the backup: %v", err)
	}
	if !same(before, tree(t, disk, ".")) {
		t.Error("something was changed")
	}
}

func TestADiskWithoutRoomIsNotRestoredInto(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b")
	b := openBackup(t, disk, "kept/b")
	disk.SetFree(4096, 1<<30)
	var room *backup.NoRoomError
	if _, err := b.Restore("data", restoreOptions(disk)); !errors.As(err, &room) || !errors.Is(err, syscall.ENOSPC) || room.Free != 4096 {
		t.Errorf("with 4096 bytes: %v", err)
	}
	for name := range tree(t, disk, "data") {
		if filepath.Base(name) != "LOCK" {
			t.Errorf("%s was made", name)
		}
	}
	disk.SetFree(1<<29, 1<<30)
	_, err := b.Restore("data", restoreOptions(disk))
	noErr(t, err)
	auditRestored(t, disk, "data")
}

// A directory is whole, or no server starts on it; and a restore that did not end is started again from scratch.
func TestARestoreThatDidNotEndLeavesWhatNoServerTakes(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b")
	lost := errors.New("lost power")
	options := restoreOptions(disk)
	var cut []*replogtest.Disk
	options.Prepare = func(int) error {
		for keep := 0; keep <= 100; keep += 50 {
			cut = append(cut, disk.Crash(keep, uint64(keep)))
		}
		return lost
	}
	if _, err := openBackup(t, disk, "kept/b").Restore("data", options); !errors.Is(err, lost) {
		t.Fatalf("ended with %v", err)
	}
	for i, disk := range append(cut, disk) {
		var unfinished *store.UnfinishedError
		if _, err := store.ReadDir(disk, "data"); !errors.As(err, &unfinished) || !strings.Contains(err.Error(), "millrace restore") {
			t.Errorf("cut %d: %v", i, err)
		}
		_, err := openBackup(t, disk, "kept/b").Restore("data", restoreOptions(disk))
		noErr(t, err)
		auditRestored(t, disk, "data")
	}
}

// damages are what may befall a file.
var damages = map[string]func(b []byte) []byte{
	"first byte":     func(b []byte) []byte { b[0] ^= 0x40; return b },
	"in the middle":  func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
	"three quarters": func(b []byte) []byte { b[len(b)*3/4] ^= 1; return b },
	"last byte":      func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b },
	"cut short":      func(b []byte) []byte { return b[:len(b)-1] },
	"half":           func(b []byte) []byte { return b[:len(b)/2] },
	"empty":          func([]byte) []byte { return nil },
	"longer":         func(b []byte) []byte { return append(b, 0) },
	"zeros":          func(b []byte) []byte { clear(b[len(b)/3 : len(b)/2]); return b },
}

func TestADamagedFileOfABackupIsNamedAndNotRestored(t *testing.T) {
	o := newOrigin(t)
	files := []string{"MANIFEST"}
	for id := range core.ShardID(shards) {
		files = append(files, fmt.Sprintf("shard-%d/000001.sst", id))
	}
	whole := newDisk(t)
	o.take(whole, "kept/b")
	content := tree(t, whole, "kept/b")
	shared := packOf("shared").Digest.String()
	for _, f := range gitobj.FilesOf(packOf("1-0")) {
		name := f.Digest.String()
		files = append(files, "objects/"+name[:2]+"/"+name+map[bool]string{true: ".idx", false: ".pack"}[f.Index])
	}
	files = append(files, "objects/000001.list", "objects/"+shared[:2]+"/"+shared+".pack")
	for _, file := range files {
		for what, damage := range damages {
			name := filepath.Join("kept/b", file)
			disk := whole.Crash(0, 1)
			noErr(t, replogtest.WriteFile(disk, name, damage([]byte(content[name]))))
			refusedByName(t, fmt.Sprintf("%s, %s", file, what), disk, name)
		}
		if file == "MANIFEST" {
			continue
		}
		disk := whole.Crash(0, 1)
		noErr(t, disk.Remove(filepath.Join("kept/b", file)))
		refusedByName(t, file+" missing", disk, filepath.Join("kept/b", file))
	}
	disk := whole.Crash(0, 1) // a file of the same form in the place of another
	noErr(t, replogtest.WriteFile(disk, "kept/b/shard-1/000001.sst", []byte(content["kept/b/shard-2/000001.sst"])))
	refusedByName(t, "another shard's", disk, "kept/b/shard-1/000001.sst")
}

// refusedByName checks that both readers of a backup name the file; a server must not start on an unfinished directory.
func refusedByName(t *testing.T, what string, disk *replogtest.Disk, file string) {
	t.Helper()
	refused := func(act string, err error) {
		t.Helper()
		var c *errs.Corruption
		if !errors.As(err, &c) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %s: %v; want a corruption of %s", what, act, err, file)
		}
	}
	b, err := backup.Open(disk, "kept/b")
	if err != nil {
		refused("open", err)
		return
	}
	defer func() { _ = b.Close() }()
	_, err = b.Verify()
	refused("verify", err)
	_, err = b.Restore("data", restoreOptions(disk))
	refused("restore", err)
	if _, err := store.ReadDir(disk, "data"); err == nil {
		t.Errorf("%s: what was begun is a data directory", what)
	}
}

func TestADamagedBackupInOneFileIsRefused(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b.tar")
	whole, err := replogtest.ReadFile(disk, "kept/b.tar")
	noErr(t, err)
	for at := 0; at < len(whole); at += 397 {
		b := append([]byte{}, whole...)
		b[at] ^= 0x10
		noErr(t, replogtest.WriteFile(disk, "kept/b.tar", b))
		refusedOrSame(t, disk, fmt.Sprintf("byte %d", at), o)
		noErr(t, replogtest.WriteFile(disk, "kept/b.tar", whole[:at]))
		refusedOrSame(t, disk, fmt.Sprintf("cut at %d", at), o)
	}
}

// refusedOrSame holds a damaged file to being refused, or to being read as what it was: tar has bytes that say nothing.
func refusedOrSame(t *testing.T, disk *replogtest.Disk, what string, o *origin) {
	t.Helper()
	b, err := backup.Open(disk, "kept/b.tar")
	if err == nil {
		_, err = b.Verify()
		_ = b.Close()
	}
	var c *errs.Corruption
	if err != nil && !errors.As(err, &c) && !errors.Is(err, backup.ErrNone) {
		t.Errorf("%s: %v", what, err)
	}
}
