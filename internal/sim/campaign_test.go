package sim

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/test/chaos/campaign"
)

var (
	tell    = flag.Bool("tell", false, "tell how far the campaign is")
	next    = flag.Bool("next", false, "print the seed after the campaign's last")
	sum     = flag.String("sum", "", "folder with the runs of a piece, to be added up")
	planned = flag.Int("planned", 0, "runs that the piece was to make")
	seconds = flag.Float64("seconds", 0, "how long it took")
	written = flag.String("record", "yes", "no: the piece is not added to the campaign's results")
)

// done is one run of a piece.
type done struct {
	Seed      uint64         `json:"seed"`
	Steps     int            `json:"steps"`
	Answers   int            `json:"answers"`
	Reads     int            `json:"reads"`
	Struck    map[string]int `json:"struck"`
	Violation string         `json:"violation,omitempty"`
}

// pieces is the campaign as it stands.
type pieces struct {
	row   campaign.Row
	root  string
	dir   string // of results
	code  string
	lines []campaign.Line
}

func readPieces(t *testing.T) pieces {
	t.Helper()
	root, err := campaign.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	row, ok := campaign.Find("R-26")
	if !ok {
		t.Fatal("simulated histories have no row")
	}
	c := pieces{row: row, root: root, dir: filepath.Join(root, "test", "chaos", "results")}
	if c.code, err = campaign.CodeHash(root, c.row); err != nil {
		t.Fatal(err)
	}
	if c.lines, err = campaign.Read(c.dir, c.row.ID); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAPieceOfTheCampaign does what scripts/sim.sh asks of it.
func TestAPieceOfTheCampaign(t *testing.T) {
	switch {
	case *next:
		fmt.Println(nextSeed(readPieces(t).lines))
	case *tell:
		c := readPieces(t)
		fmt.Println(campaign.Count(c.row, c.lines, c.code))
	case *sum != "":
		c := readPieces(t)
		l := addUp(t, *sum)
		l.Row, l.Code, l.Commit, l.Host = c.row.ID, c.code, campaign.Commit(c.root), campaign.Host()
		l.Planned, l.Time = *planned, time.Now().UTC().Truncate(time.Second)
		l.Figures["seconds"] = *seconds
		fmt.Printf("%d of %d seeds, %d to %d: %.0f steps, %.0f results and %.0f reads judged, faults %v, %d violations, %.0f s, %.0f steps/s\n",
			l.Done, l.Planned, uint64(l.Figures["first"]), uint64(l.Figures["last"]), l.Figures["steps"], l.Figures["answers"], l.Figures["reads"],
			l.Faults, l.Violations, *seconds, l.Figures["steps"]/max(*seconds, 1))
		if *written == "no" || l.Done+l.Violations == 0 {
			return
		}
		if err := campaign.Append(c.dir, l); err != nil {
			t.Fatal(err)
		}
		fmt.Println(campaign.Count(c.row, append(c.lines, l), c.code))
	default:
		t.Skip("scripts/sim.sh runs it")
	}
}

// nextSeed returns the first seed that no piece has run, on any code: each piece explores. Restless ones count apart.
func nextSeed(lines []campaign.Line) uint64 {
	after := uint64(0)
	for _, l := range lines {
		if last := uint64(l.Figures["last"]); last < Restless {
			after = max(after, last)
		}
	}
	return after + 1
}

// addUp makes one line of the runs that the processes of a piece have written down.
func addUp(t *testing.T, dir string) campaign.Line {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	l := campaign.Line{Faults: make(map[string]int), Figures: make(map[string]float64)}
	least, most := uint64(0), uint64(0)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for in := bufio.NewScanner(f); in.Scan(); {
			var d done
			if json.Unmarshal(in.Bytes(), &d) != nil {
				continue // the last line of a process that was ended
			}
			l.Done++
			if d.Violation != "" {
				l.Violations++
				l.Failed = append(l.Failed, campaign.Seed(d.Seed))
			}
			for kind, n := range d.Struck {
				l.Faults[kind] += n
			}
			l.Figures["steps"] += float64(d.Steps)
			l.Figures["answers"] += float64(d.Answers)
			l.Figures["reads"] += float64(d.Reads)
			if most = max(most, d.Seed); least == 0 || d.Seed < least {
				least = d.Seed
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l.Seed = campaign.Seed(least)
	l.Figures["first"], l.Figures["last"] = float64(least), float64(most)
	if l.Done > 0 && len(l.Faults) == 0 {
		l.Invalid = "no fault happened"
	}
	return l
}

func TestThePiecesOfACampaignAreAddedUp(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"0.jsonl": `{"seed":11,"steps":100,"answers":5,"reads":2,"struck":{"crash":2}}` + "\n" + `{"seed":13,"steps":50,"viol`,
		"1.jsonl": `{"seed":12,"steps":10,"struck":{"crash":1,"flap":1},"violation":"lost"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := addUp(t, dir)
	if l.Done != 2 || l.Violations != 1 || l.Seed != 11 || l.Failed[0] != 12 || l.Faults["crash"] != 3 || l.Figures["steps"] != 110 {
		t.Errorf("%+v", l)
	}
	restless := campaign.Line{Figures: map[string]float64{"last": float64(Restless + 7)}}
	if got := nextSeed([]campaign.Line{l, restless}); got != 13 {
		t.Errorf("the next piece begins at %d", got)
	}
}
