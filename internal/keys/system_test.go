package keys

import (
	"testing"

	"github.com/millrace/millrace/internal/core"
)

func TestSystemKeysAreFrozen(t *testing.T) {
	const id = "ab000000000000000000000000000001"
	request := core.RequestID{0: 0xab, 15: 1}
	session := core.SessionID(request)
	const due = "8000018bcfe56800" // the sign bit is turned
	const stamp = core.ShardTime(1_700_000_000_000)
	const system = "00000000000000000000"
	wantKey(t, "partition state", PartitionState(sample), samplePrefix+"01"+"01"+"00")
	wantKey(t, "configuration", NamespaceConfig(sample), samplePrefix+"01"+"02"+"00")
	wantKey(t, "request", Request(sample, request), samplePrefix+"01"+"03"+id+"00")
	wantKey(t, "request due", RequestDue(sample, stamp, request), samplePrefix+"01"+"04"+due+id+"00")
	wantKey(t, "session", Session(sample, session), samplePrefix+"01"+"05"+id+"00")
	wantKey(t, "answer", SessionAnswer(sample, session, 63), samplePrefix+"01"+"06"+id+"3f"+"00")
	wantKey(t, "session due", SessionDue(sample, stamp, session), samplePrefix+"01"+"07"+due+id+"00")
	wantKey(t, "directory counter", DirectoryCounter(), system+"06"+"01"+"00")
	wantKey(t, "tenant", Tenant("acme"), system+"06"+"02"+"61636d65"+"00")
	wantKey(t, "keys of sessions of browsers", SessionKeys(), system+"06"+"09"+"00")
	wantKey(t, "tenant's configuration", TenantConfig("acme"), system+"06"+"06"+"61636d65"+"00")
	wantKey(t, "namespace", Namespace(0x01020304, "shop"), system+"06"+"03"+"01020304"+"73686f70"+"00")
	wantKey(t, "shard time", ShardTime(), system+"07"+"01"+"00")
	wantKey(t, "shard configuration", ShardConf(), system+"07"+"03"+"00")
	wantKey(t, "members", Members(), system+"06"+"04"+"00")
	wantKey(t, "format", Format(), system+"06"+"05"+"00")
	wantKey(t, "removal", Removal(0x01020304, 5), system+"06"+"07"+"0102030400000005"+"00")
	wantKey(t, "number of removals", RemovalCounter(), system+"06"+"08"+"00")
	wantKey(t, "removal of a partition", PartitionRemoval(sample), system+"07"+"04"+samplePrefix+"00")
	if got, ok := RemovalOf(Removal(7, 5)); !ok || got != 7 {
		t.Errorf("a removal is of tenant %d, %v", got, ok)
	}
	if _, ok := RemovalOf(RemovalCounter()); ok {
		t.Error("the number of removals was read as one")
	}
	wantKey(t, "shard floor", ShardFloor(), system+"07"+"02"+"00")
}

func inRange(key, from, to []byte) bool { return Compare(from, key) <= 0 && Compare(key, to) < 0 }

func TestDueRangesEndWithTheirTime(t *testing.T) {
	id := [16]byte{0xff, 15: 0xff}
	for _, c := range []struct {
		due, until core.ShardTime
		want       bool
	}{{-5, -5, true}, {-4, -5, false}, {0, 0, true}, {1, 0, false}, {255, 255, true}, {256, 255, false}, {255, 256, true}, {core.Never, core.Never, true}, {core.Never, core.Never - 1, false}} {
		from, to := RequestsDue(sample, c.until)
		if got := inRange(RequestDue(sample, c.due, id), from, to); got != c.want {
			t.Errorf("request due at %d until %d: %v", c.due, c.until, got)
		}
		from, to = SessionsDue(sample, c.until)
		if got := inRange(SessionDue(sample, c.due, id), from, to); got != c.want {
			t.Errorf("session due at %d until %d: %v", c.due, c.until, got)
		}
		if due, got, ok := DueOf(SessionDue(sample, c.due, id)); due != c.due || got != id || !ok {
			t.Errorf("due %d reads as %d, %x, %v", c.due, due, got, ok)
		}
	}
	if _, _, ok := DueOf(PartitionState(sample)); ok {
		t.Error("a key of no time index was read as one")
	}
}

func TestNamesReadBack(t *testing.T) {
	if got := TenantOf(Tenant("acme")); got != "acme" {
		t.Errorf("tenant %q", got)
	}
	if got := NamespaceOf(Namespace(7, "shop")); got != "shop" {
		t.Errorf("namespace %q", got)
	}
	from, to := Namespaces(7)
	if !inRange(Namespace(7, "\xff"), from, to) || inRange(Namespace(8, "a"), from, to) {
		t.Error("the range of a tenant's namespaces is wrong")
	}
	if from, to = Tenants(); !inRange(Tenant("z"), from, to) || inRange(Namespace(1, "a"), from, to) {
		t.Error("the range of tenants is wrong")
	}
	if from, to = TenantConfigs(); !inRange(TenantConfig("z"), from, to) || inRange(Tenant("z"), from, to) || TenantOf(TenantConfig("acme")) != "acme" {
		t.Error("the range of the configurations of tenants is wrong")
	}
	s := core.SessionID{15: 0xff}
	if from, to = SessionAnswers(sample, s); !inRange(SessionAnswer(sample, s, 0), from, to) || !inRange(SessionAnswer(sample, s, 255), from, to) {
		t.Error("the range of a session's answers is wrong")
	}
}

func TestDecodePartition(t *testing.T) {
	b := AppendPartition(nil, sample)
	if p, ok := DecodePartition(b); p != sample || !ok {
		t.Errorf("%v, %v", p, ok)
	}
	if _, ok := DecodePartition(b[:9]); ok {
		t.Error("nine bytes were read")
	}
	if _, ok := DecodePartition(append(b, 0)); ok {
		t.Error("eleven bytes were read")
	}
}
