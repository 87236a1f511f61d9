//go:build faults

package backup_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/fault"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// A process may end at any point of a restore, with or without what it had not synced.
func TestARestoreThatEndsAnywhereIsBegunAnew(t *testing.T) {
	defer fault.Set(nil)
	o := newOrigin(t)
	whole := newDisk(t)
	o.take(whole, "kept/b")
	planted := errors.New("planted")
	for _, point := range []string{"store.ingest", "store.ingested", "backup.objects_restored", "backup.states_restored", "backup.logs_begun", "backup.identified"} {
		for visit := 1; visit <= 2; visit++ {
			disk := whole.Crash(0, 1)
			var cut []*replogtest.Disk
			visits := 0
			fault.Set(func(name string) error {
				if name != point {
					return nil
				}
				if visits++; visits != visit {
					return nil
				}
				for keep := 0; keep <= 100; keep += 25 {
					cut = append(cut, disk.Crash(keep, uint64(keep+visit)))
				}
				return planted
			})
			_, err := openBackup(t, disk, "kept/b").Restore("data", restoreOptions(disk))
			fault.Set(nil)
			if len(cut) == 0 {
				continue // it is not passed so often
			}
			if err == nil {
				t.Errorf("%s: the restore ended well", point)
			}
			for _, disk := range append(cut, disk) {
				var unfinished *store.UnfinishedError
				if _, err := store.ReadDir(disk, "data"); !errors.As(err, &unfinished) {
					t.Errorf("%s: a server would take the directory: %v", point, err)
				}
				_, err := openBackup(t, disk, "kept/b").Restore("data", restoreOptions(disk))
				noErr(t, err)
				auditRestored(t, disk, "data")
			}
		}
	}
}

// So may one that makes a survivor over.
func TestARecoveryThatEndsAnywhereIsGoneOnWith(t *testing.T) {
	defer fault.Set(nil)
	planted := errors.New("planted")
	for _, point := range []string{"backup.replayed", "backup.log_aside", "backup.logs_exchanged", "backup.recovered"} {
		disk := survivor(t)
		var cut []*replogtest.Disk
		fault.Set(func(name string) error {
			if name != point {
				return nil
			}
			for keep := 0; keep <= 100; keep += 25 {
				cut = append(cut, disk.Crash(keep, uint64(keep)))
			}
			return planted
		})
		_, err := backup.Recover("data", shards, restoreOptions(disk))
		fault.Set(nil)
		if err == nil || len(cut) == 0 {
			t.Fatalf("%s: it ended with %v after %d visits", point, err, len(cut))
		}
		for _, disk := range append(cut, disk) {
			var unfinished *store.UnfinishedError
			if _, err := store.ReadDir(disk, "data"); !errors.As(err, &unfinished) {
				t.Errorf("%s: a server would take the directory: %v", point, err)
			}
			_, err := backup.Recover("data", shards, restoreOptions(disk))
			noErr(t, err)
			auditAgain(t, disk)
		}
	}
}
