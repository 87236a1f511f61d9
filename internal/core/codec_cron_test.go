package core

import (
	"testing"
)

// The ops of crons, which came with format 4.
func TestGoldenBytesOfCrons(t *testing.T) {
	e := &Entry{Format: FormatShare, Stamp: 1_700_000_000_123, Proposer: 5<<32 | 1, Seq: 42, Commits: []Commit{{
		Partition: Partition{Tenant: 7, Namespace: 300, Index: 2}, Ops: []Op{
			&CronSet{
				Name: "nightly", IfVersion: 3, Config: CronConfig{
					Schedule: "0 2 * * *", Zone: "Europe/Berlin", Jitter: 60_000, Start: 1_700_000_000_000, End: 1_800_000_000_000, Paused: true,
					Overlap: CronCancelPrevious, CatchUp: CronCatchUpAll,
				}, Template: TaskCreate{Queue: "reports", TaskKind: "report", Payload: []byte("{}"), Labels: []Label{{"env", "prod"}}},
			},
			&CronSet{Name: "nightly", Change: CronChangePause, IfVersion: -1},
			&CronDelete{Name: "nightly", IfVersion: -1},
			&CronFire{Name: "nightly", Version: 4, Slot: 1_700_000_000_000, Run: 1_700_000_060_000, Passed: 1, Next: Never},
			&CronFire{Name: "nightly", Version: 4, Slot: 1_700_000_000_000, Waiting: true},
			&CronFire{Name: "nightly", Trigger: TaskID{1, 15: 2}},
		},
	}}}
	goldenEntry(t, "format4_crons.golden", e)
}

func TestTheNumberOfARunAndItsOutcome(t *testing.T) {
	for _, o := range []CronOutcome{CronStarted, CronWaits, CronOverlaps, CronMissed, CronRefused, CronReplaced} {
		if run, got := CronRunOf(CronVersion(1<<40, o)); run != 1<<40 || got != o {
			t.Errorf("run %d outcome %d, want %d", run, got, o)
		}
	}
}
