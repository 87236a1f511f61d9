package githttp

import (
	"strings"
	"testing"
)

func TestAnErrorFollowsOnlyWholeLinesBeforeAnyPack(t *testing.T) {
	lines := func(l ...string) string { return string(pushOf(l...)) }
	for _, c := range []struct {
		said        string
		whole, told bool
	}{
		{"", true, false},
		{lines("shallow-info\n"), true, false},
		{lines("shallow-info\n", "shallow "+ones, flushPkt), true, false},
		{lines("acknowledgments\n", "NAK\n") + delimPkt, true, false},
		{lines("ERR upload-pack: not our ref " + ones), true, true},
		{lines("acknowledgments\n", "ERR no"), true, true},
		{lines("NAK\n", "\x02Counting"), false, false},
		{lines("packfile\n"), false, false},
		{lines("NAK\n") + "PACK\x00\x00\x00\x02", false, false},
		{lines("shallow-info\n")[:7], false, false},
		{strings.Repeat(lines("shallow "+ones), 1000), false, false},
	} {
		var f fetched
		for part := range strings.SplitSeq(c.said, "0") {
			f.add([]byte(part))
			f.add([]byte("0"))
		}
		f.head, f.bytes = f.head[:min(len(f.head), len(c.said))], int64(len(c.said))
		if whole, told := f.parse(); whole != c.whole || told != c.told {
			t.Errorf("%.60q: %v, %v", c.said, whole, told)
		}
	}
}
