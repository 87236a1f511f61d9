package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/millrace/millrace/test/chaos/campaign"
	"github.com/millrace/millrace/test/chaos/proc"
	"github.com/millrace/millrace/test/chaos/row"
)

// Counts of each row: a smoke test by default, none for rows that are much like another, and what a change must pass with
// CHAOS=check.
var counts = map[string]struct{ smoke, check int }{
	"R-01":        {3, 50},
	"R-01-3":      {0, 1},
	"R-03":        {1, 10},
	"R-04":        {0, 1},
	"R-05":        {40, 675}, // each 97th byte
	"R-06":        {50, 200},
	"R-07-1":      {0, 3},
	"R-08":        {0, 1},
	"R-09":        {0, 1},
	"R-09-1":      {0, 1},
	"R-10":        {150, 5000},
	"R-11":        {1, 8},
	"R-12":        {0, 5},
	"R-14":        {0, 2},
	"R-14-1":      {0, 0},
	"R-15":        {80, 500},
	"R-16":        {300, 5000},
	"R-17":        {400, 2000},
	"R-18":        {0, 0},
	"R-23-search": {0, 1},
	"R-24":        {0, 1},
	"R-24-1":      {0, 2},
	"R-30":        {2, 5},
	"R-31":        {3, 5},
	"R-34":        {0, 3},
}

// inTurn are rows of which campaigns alone need a count. A change runs two of them, chosen by the number in CHAOS_TURN; all
// are run without it.
var inTurn = []string{"R-04", "R-09", "R-09-1", "R-12", "R-14", "R-24", "R-24-1"}

// hasTurn reports whether this change runs a row that has a count for changes.
func hasTurn(t *testing.T, id string) bool {
	i, turn := slices.Index(inTurn, id), os.Getenv("CHAOS_TURN")
	if i < 0 || turn == "" {
		return true
	}
	n, err := strconv.ParseUint(turn, 10, 64)
	if err != nil {
		t.Fatalf("CHAOS_TURN: %v", err)
	}
	rows := uint64(len(inTurn))
	return uint64(i) == n%rows || uint64(i) == (n+3)%rows
}

var binary, faults, worker, disk string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "millrace-chaos-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// checking says that the counts are those which a change must pass.
func checking() bool { return os.Getenv("CHAOS") == "check" }

func withFaults(how row.How) string {
	if !how.Faults {
		return ""
	}
	return faults
}

func build(dir string) error {
	root, err := campaign.Root(".")
	if err != nil {
		return err
	}
	ctx := context.Background()
	if binary, err = proc.Build(ctx, root, dir, "invariants"); err != nil {
		return err
	}
	if checking() {
		if faults, err = proc.Build(ctx, root, dir, "invariants,faults"); err != nil {
			return err
		}
	}
	if worker, err = proc.BuildWorker(ctx, root, dir); err != nil {
		return err
	}
	disk, err = proc.BuildDisk(ctx, root, dir)
	return err
}

func TestKillingTheServerUnderLoadLosesNothing(t *testing.T)   { run(t, "R-01") }
func TestKillingNodesOfAClusterLosesNothing(t *testing.T)      { run(t, "R-01-3") }
func TestAPowerCutLosesNothing(t *testing.T)                   { run(t, "R-03") }
func TestACutOfAllPowerLosesNothing(t *testing.T)              { t.Parallel(); run(t, "R-04") }
func TestAFailedSyncEndsTheServerAndLosesNothing(t *testing.T) { t.Parallel(); run(t, "R-07-1") }
func TestAFullDiskLosesNothing(t *testing.T)                   { t.Parallel(); run(t, "R-08") }
func TestAClusterOutlivesSlowDisks(t *testing.T)               { t.Parallel(); run(t, "R-09") }
func TestCallsEndWhileTheDiskDoesNotAnswer(t *testing.T)       { t.Parallel(); run(t, "R-09-1") }
func TestADamagedLastBatchIsCutToWholeCommits(t *testing.T)    { run(t, "R-05") }
func TestDamageOfASealedLogIsRefused(t *testing.T)             { run(t, "R-06") }
func TestNobodyAnswersAloneWhenLinksAreCut(t *testing.T)       { t.Parallel(); run(t, "R-10") }

func TestMembersComeAndGoUnderLoadAndNothingIsLost(t *testing.T) { t.Parallel(); run(t, "R-14") }

func TestANodeWithoutItsDiskFetchesItsStateWhileTheOthersServe(t *testing.T) {
	t.Parallel()
	run(t, "R-14-1")
}

func TestSlowAndBrokenLinksLoseNothing(t *testing.T) { t.Parallel(); run(t, "R-12") }

func TestABacklogFarBeyondItsMemoryNeitherEndsTheServerNorLosesAnything(t *testing.T) {
	t.Parallel()
	run(t, "R-18")
}

func TestRestartsInOrderFailNoCall(t *testing.T)          { t.Parallel(); run(t, "R-24") }
func TestLeadersThatAreHandedOverFailNoCall(t *testing.T) { t.Parallel(); run(t, "R-24-1") }

func TestSearchesAtHalfLoadLeaveTheServerAsItWas(t *testing.T)          { run(t, "R-23-search") }
func TestAClusterOutlivesItsLeader(t *testing.T)                        { t.Parallel(); run(t, "R-11") }
func TestAWorkerPausedPastItsLeaseChangesNothing(t *testing.T)          { run(t, "R-15") }
func TestEffectsHappenExactlyOnceWhileTheServerIsKilled(t *testing.T)   { run(t, "R-16") }
func TestRepeatedCallsHaveOneEffectWhileTheServerIsKilled(t *testing.T) { run(t, "R-17") }
func TestPushesAreWholeOrAbsentWhileTheServerIsKilled(t *testing.T)     { run(t, "R-30") }
func TestSearchesHaveAllThatWasAcknowledgedAfterAKill(t *testing.T)     { run(t, "R-31") }
func TestTheNextLeaderHasAllThatTheLastOneHad(t *testing.T)             { t.Parallel(); run(t, "R-34") }

// run makes runs of a row until its count is reached. The files of a failed run are kept.
func run(t *testing.T, id string) {
	if testing.Short() {
		t.Skip("a fault row")
	}
	want := counts[id].smoke
	if checking() {
		want = counts[id].check
	}
	switch {
	case counts[id].check == 0:
		t.Skip("in campaigns only: make chaos ROW=" + id)
	case want == 0:
		t.Skip("with CHAOS=check only")
	case checking() && !hasTurn(t, id):
		t.Skip("in the turn of another change")
	}
	if err := row.Unable(id); err != nil {
		t.Skip(err)
	}
	runner, again := row.Runners()[id], 2
	for i, done := 0, 0; done < want; i++ {
		seed := campaign.Seed(1).Run(i)
		dir, err := os.MkdirTemp("", "millrace-"+id+"-")
		if err != nil {
			t.Fatal(err)
		}
		out, err := runner.Run(t.Context(), row.Env{
			Binary: binary, Faults: withFaults(runner), Worker: worker, Disk: disk, Dir: dir, Seed: uint64(seed), Log: t.Logf, Brief: true,
		}, min(runner.Max, want-done))
		var notRun proc.NotRunError
		if errors.As(err, &notRun) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			t.Skip(notRun)
		}
		if err != nil {
			t.Fatalf("SEED=%s: %v; files in %s", seed, err, dir)
		}
		t.Logf("%s SEED=%s: %s", id, seed, out)
		if out.Violations() == 0 && out.Invalid != "" && again > 0 { // the machine was too slow for anything to be judged
			again--
			continue
		}
		if out.Violations() > 0 || out.Invalid != "" || out.Done == 0 {
			t.Fatalf("SEED=%s: ledgers, log and data are kept in %s", seed, filepath.Clean(dir))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		done += out.Done
	}
}
