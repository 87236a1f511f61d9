package main

import (
	"slices"
	"testing"
)

func TestASparkLineIsAsHighAsItsCounts(t *testing.T) {
	for _, tc := range []struct {
		counts []uint32
		width  int
		want   string
	}{
		{nil, 30, ""},
		{[]uint32{0, 0}, 30, "  "},
		{[]uint32{0, 1, 4, 8}, 30, " ▁▄█"},
		{[]uint32{1, 1_000_000, 0}, 30, "▁█ "},
		{[]uint32{9, 9, 1, 2}, 2, "▄█"}, // the newest ones
		{[]uint32{1<<32 - 1, 1 << 31}, 30, "█▅"},
	} {
		if got := sparkLine(tc.counts, tc.width); got != tc.want {
			t.Errorf("%v in %d columns: %q, want %q", tc.counts, tc.width, got, tc.want)
		}
	}
}

func TestSparkLinesEndInOneColumnAndFitTheTerminal(t *testing.T) {
	views := []topView{{Spark: []uint32{1, 2, 0, 1}}, {}, {Spark: []uint32{8}}}
	table := func(columns int) []string { return addSparks([]string{"queue", "a", "b", "long"}, views, columns) }
	want := []string{"queue  last 15 min", "a             ▄█ ▄", "b", "long             █"}
	if got := table(18); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := table(17); !slices.Equal(got, []string{"queue", "a", "b", "long"}) {
		t.Errorf("a narrow terminal: %q", got)
	}
}
