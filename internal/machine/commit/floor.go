package commit

import (
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// A history may be broken off: a state from before is brought back, and what came after it is gone, but not the tokens and
// revisions that people were told of. The floor of a shard keeps what follows apart from that: each token and each revision
// that the shard gives out from then on is above it, in every partition, those that are made later too.

// floorGap is how far at least a floor is above what was given out in the state that is gone on from: more than a partition
// gives out in months.
const floorGap = 1 << 32

// readFloor reads the shard's floor; 0 where no history was broken off.
func readFloor(v core.View) (uint64, error) {
	row, ok, err := v.Get(keys.ShardFloor())
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errs.Corruptf("floor of the shard %x", row)
	}
	return binary.BigEndian.Uint64(row), nil
}

// BreakOff raises the floor above everything that the shard has given out, and at least to least; and it forgets who the
// members were, so that those are the members with whom the server is started. It is not part of any entry: the caller
// begins another history with the state as it is then. The machine must be opened again afterwards.
func (m *Machine) BreakOff(tx core.Txn, least uint64) {
	floor := max(m.floor, least)
	for _, part := range m.sorted {
		floor = max(floor, part.counts.rev+floorGap, uint64(part.queue.LastToken())+floorGap)
	}
	tx.Set(keys.ShardFloor(), binary.BigEndian.AppendUint64(nil, floor))
	tx.Delete(keys.ShardConf())
	tx.Delete(keys.Members())
}

// Floor returns what every token and revision that is given out is above.
func (m *Machine) Floor() uint64 { return m.floor }
