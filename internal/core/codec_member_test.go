package core

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
)

func sampleDirectory() Directory {
	return Directory{
		Version: 7, Next: 5,
		Members: []Member{
			{Replica: 1, Node: 1, Name: "n1", Peer: "h1:1", API: "h1:2", HTTP: "h1:3", State: MemberVoter, Store: StoreID{1, 15: 2}},
			{Replica: 4, Node: 9, Name: "n9", Peer: "h9:1", State: MemberJoining, Token: JoinHash{3, 31: 4}, TokenUntil: 3_600_000},
		},
		Job: Job{
			ID: 2, Kind: JobReplace, State: JobFailed, Node: 9, Replica: 4, Old: 1, Was: MemberVoter, Learner: true, Ending: JobFailed,
			Reason: "deadline", Started: 5, Deadline: 3_600_005, Ended: 3_600_006,
		},
	}
}

func TestDirectoryBytesAreFrozen(t *testing.T) {
	d := sampleDirectory()
	const want = "01070502" +
		"0101026e310468313a310468313a320468313a3305" + "01000000000000000000000000000002" + "0000" +
		"0409026e390468393a31000001" + "00000000000000000000000000000000" + "01" +
		"0300000000000000000000000000000000000000000000000000000000000004" + "80bab703" +
		"02030309040105010308646561646c696e650a8abab7038cbab703"
	if got := hex.EncodeToString(AppendDirectory(nil, &d)); got != want {
		t.Errorf("encoded as\n%s, want\n%s", got, want)
	}
	b, _ := hex.DecodeString(want)
	got, err := DecodeDirectory(b)
	if err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for n := range len(b) {
		if _, err := DecodeDirectory(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes were read: %v", n, err)
		}
	}
	if _, err := DecodeDirectory(append(b, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many was read: %v", err)
	}
}

func TestDirectoryWithDrainedMembersIsFrozen(t *testing.T) {
	d := sampleDirectory()
	plain := AppendDirectory(nil, &d)
	d.Members[1].Drained = true
	b := AppendDirectory(nil, &d)
	if want := "02" + hex.EncodeToString(plain[1:]) + "0104"; hex.EncodeToString(b) != want {
		t.Errorf("encoded as\n%x, want\n%s", b, want)
	}
	if got, err := DecodeDirectory(b); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	for _, tail := range [][]byte{{0}, {1, 2}, {2, 4, 1}, {2, 4, 4}, {1}, {1, 4, 0}} {
		if _, err := DecodeDirectory(append(b[:len(b)-2:len(b)-2], tail...)); !errors.Is(err, ErrMalformed) {
			t.Errorf("drained %v was read: %v", tail, err)
		}
	}
}

func TestMemberOpBytesAreFrozen(t *testing.T) {
	for _, c := range []struct {
		op   Op
		want string
	}{
		{&MembersInit{Members: sampleDirectory().Members[:1]}, "13" + "01" + "0101026e310468313a310468313a320468313a3305" + "01000000000000000000000000000002" + "0000"},
		{
			&MemberChange{Do: MemberReplace, Node: 2, With: 4, Learner: true, Name: "n2", Peer: "p", API: "a", HTTP: "h", Store: StoreID{1}, Token: JoinHash{2}},
			"14" + "05020401" + "026e32" + "0170" + "0161" + "0168" + "01000000000000000000000000000000" + "01" + "0200000000000000000000000000000000000000000000000000000000000000",
		},
		{&MemberStep{Job: 3, Version: 300, Fail: true}, "15" + "03" + "ac02" + "01"},
		{&FormatRaise{To: 300, Members: 7}, "16" + "ac02" + "07"},
	} {
		w := &writer{}
		w.op(c.op)
		if got := hex.EncodeToString(w.b); got != c.want {
			t.Errorf("%T is encoded as\n%s, want\n%s", c.op, got, c.want)
		}
		r := &reader{b: w.b}
		if got := r.op(); r.end() != nil || !reflect.DeepEqual(got, c.op) {
			t.Errorf("%T reads back as %+v, %v", c.op, got, r.end())
		}
	}
}

func TestGoneReplicasAreThoseThatNobodyHas(t *testing.T) {
	d := sampleDirectory()
	for replica, want := range map[uint64]bool{1: false, 2: true, 3: true, 4: false, 5: false, 9: false} {
		if got := d.Gone(replica); got != want {
			t.Errorf("replica %d gone: %v", replica, got)
		}
	}
	if (&Directory{}).Gone(1) {
		t.Error("a replica is gone of a cluster without a directory")
	}
	if m := d.OfNode(9); m == nil || m.Replica != 4 {
		t.Errorf("node 9 has %+v", m)
	}
}
