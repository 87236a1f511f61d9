package check

import (
	"bytes"
	"strings"
	"testing"
)

const documentedLine = `{"t_invoke":81,"t_return":96,"op":"complete","id":"t7","request_id":"r9","token":"41","attempt":1,"node":2,"partition":"p1","index":5120,"outcome":"ok"}`

func TestLedgerLineHasTheDocumentedFields(t *testing.T) {
	calls, torn, err := ReadLedger(strings.NewReader(documentedLine+"\n"), "c")
	if err != nil || torn || len(calls) != 1 {
		t.Fatalf("read %d calls, torn %v, err %v", len(calls), torn, err)
	}
	want := Call{
		Invoke: 81, Return: 96, Op: OpComplete, ID: "t7", RequestID: "r9", Token: 41, Attempt: 1, Node: 2,
		Partition: "p1", Index: 5120, Outcome: OK, Clock: "c",
	}
	if calls[0] != want {
		t.Errorf("read %+v, want %+v", calls[0], want)
	}
	var out bytes.Buffer
	if err := WriteCall(&out, calls[0]); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != documentedLine {
		t.Errorf("wrote\n%s\nwant\n%s", got, documentedLine)
	}
}

func TestLedgerCutAnywhereInItsLastLineReadsTheRest(t *testing.T) {
	whole := documentedLine + "\n" + documentedLine + "\n"
	for cut := len(documentedLine) + 1; cut <= len(whole); cut++ {
		calls, torn, err := ReadLedger(strings.NewReader(whole[:cut]), "c")
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		rest := cut - len(documentedLine) - 1
		wantCalls, wantTorn := 1, rest > 0
		if rest >= len(documentedLine) {
			wantCalls, wantTorn = 2, false
		}
		if len(calls) != wantCalls || torn != wantTorn {
			t.Errorf("cut at %d: %d calls, torn %v; want %d, %v", cut, len(calls), torn, wantCalls, wantTorn)
		}
	}
}

func TestLedgerRefusesBadLines(t *testing.T) {
	for name, text := range map[string]string{
		"torn in the middle":   documentedLine[:40] + "\n" + documentedLine + "\n",
		"unknown outcome":      strings.Replace(documentedLine, `"ok"`, `"fine"`, 1) + "\n" + documentedLine + "\n",
		"no op":                strings.Replace(documentedLine, `"complete"`, `""`, 1) + "\n",
		"returns before it is": strings.Replace(documentedLine, `"t_return":96`, `"t_return":80`, 1) + "\n",
	} {
		if _, _, err := ReadLedger(strings.NewReader(text), "c"); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: err = %v, want one that names line 1", name, err)
		}
	}
}

func TestLedgerReadsAPartitionNumber(t *testing.T) {
	text := strings.Replace(documentedLine, `"p1"`, `3`, 1)
	calls, _, err := ReadLedger(strings.NewReader(text), "c")
	if err != nil || calls[0].Partition != "3" {
		t.Errorf("partition %q, err %v", calls[0].Partition, err)
	}
}

func TestMergeOrdersByTimeWithinAClockOnly(t *testing.T) {
	got := Merge(
		[]Call{{Clock: "b", Invoke: 5, ID: "b5"}, {Clock: "b", Invoke: 1, ID: "b1"}},
		[]Call{{Clock: "a", Invoke: 9, ID: "a9"}, {Clock: "a", Invoke: 2, ID: "a2"}})
	var ids []string
	for _, c := range got {
		ids = append(ids, c.ID)
	}
	if want := "a2 a9 b1 b5"; strings.Join(ids, " ") != want {
		t.Errorf("merged %v, want %s", ids, want)
	}
}
