package core

import (
	"encoding/binary"
	"math"
	"testing"
)

// What is placed somewhere stays there for ever: these are the same in every client.
func TestPlacementIsFrozen(t *testing.T) {
	for _, c := range []struct {
		key           string
		of2, of4, of7 uint16
		of4096        uint16
	}{
		{"", 1, 1, 2, 805},
		{"a", 0, 0, 5, 3212},
		{"b", 1, 1, 0, 421},
		{"user/1", 0, 2, 6, 578},
		{"{user/1}/name", 0, 2, 6, 578},
		{"x{user/1}", 0, 2, 6, 578},
		{"{}user", 0, 2, 2, 4082},
		{"{open", 0, 2, 3, 706},
		{"a{}{b}", 0, 0, 1, 148},
		{"naïve", 1, 3, 0, 683},
		{"{{a}}", 1, 1, 4, 3105},
		{"}{a}", 0, 0, 5, 3212},
	} {
		got := [4]uint16{
			PlaceKey([]byte(c.key), 2), PlaceKey([]byte(c.key), 4), PlaceKey([]byte(c.key), 7), PlaceKey([]byte(c.key), 4096),
		}
		if want := [4]uint16{c.of2, c.of4, c.of7, c.of4096}; got != want {
			t.Errorf("key %q is placed in %v, want %v", c.key, got, want)
		}
		if p := PlaceKey([]byte(c.key), 1); p != 0 {
			t.Errorf("key %q is placed in partition %d of 1", c.key, p)
		}
	}
	id := NewTaskID(1_700_000_000_000, 0, [9]byte{0, 0, 0, 0, 0, 0, 1, 5, 9})
	for p, want := range map[int]uint16{1: 0, 2: 1, 4: 1, 7: 261 % 7, 4096: 261} {
		if got := PlaceID(id, p); got != want {
			t.Errorf("id %s is placed in partition %d of %d, want %d", id, got, p, want)
		}
	}
}

func TestATaskIsPlacedByTagThenUniqueKeyThenID(t *testing.T) {
	op := TaskCreate{ID: NewTaskID(1, 0, [9]byte{7: 3}), Unique: Unique{Key: "u"}, Tag: "t"}
	if got, want := op.Place(1000), PlaceText([]byte("t"), 1000); got != want {
		t.Errorf("with a tag: partition %d, want %d", got, want)
	}
	op.Tag = ""
	if got, want := op.Place(1000), PlaceText([]byte("u"), 1000); got != want {
		t.Errorf("with a unique key: partition %d, want %d", got, want)
	}
	op.Unique = Unique{}
	if got := op.Place(1000); got != 3 {
		t.Errorf("with an id alone: partition %d, want 3", got)
	}
}

func TestAPlacedIDSaysItsPartitionTwice(t *testing.T) {
	for _, partitions := range []int{1, 2, 3, 7, 4096} {
		for _, n := range []uint64{0, 1, 4095, 1 << 40, math.MaxUint64 - 1, math.MaxUint64} {
			for _, p := range []uint16{0, uint16(partitions - 1)} {
				var random [9]byte
				binary.BigEndian.PutUint64(random[:8], n)
				random[8] = 0x5a
				id := PlacedID(1_700_000_000_000, p, partitions, random)
				if id.Partition() != p || PlaceID(id, partitions) != p || id.Millis() != 1_700_000_000_000 {
					t.Errorf("partition %d of %d with %x: bits say %d, placed in %d", p, partitions, n, id.Partition(), PlaceID(id, partitions))
				}
				if other := id.WithPartition(77); other.Partition() != 77 || other.WithPartition(p) != id {
					t.Errorf("%s with other bits is %s", id, other)
				}
			}
		}
	}
}
