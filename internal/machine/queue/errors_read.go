package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// Errors reads groups of errors, those with the highest counts first, at most core.MaxErrorsListed. It looks at up to MaxInspected
// groups. Trends end with the hour of now, which is shard time.
func Errors(v core.View, p core.Partition, q core.ErrorQuery, now core.ShardTime) (page core.ErrorPage, err error) {
	queues := []numberedQueue{{name: q.Queue}}
	if q.Queue == "" {
		if queues, page.More, err = queuesWithErrors(v, p); err != nil {
			return page, err
		}
	}
	left := MaxInspected
	for _, l := range queues {
		value, ok, err := v.Get(keys.AppendQueueConfig(nil, p, l.name))
		if err != nil {
			return page, err
		}
		if !ok {
			continue
		}
		row, err := decodeConfig(value)
		if err != nil {
			return page, err
		}
		if l.number != 0 && l.number != row.number { // that one was removed, and another one has its name
			continue
		}
		from, to := keys.ErrorGroupRange(p, row.number, 0)
		err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
			if left--; left < 0 {
				page.More = true
				return false, nil
			}
			row, ok := keys.DecodeQueue(key)
			if !ok {
				return false, errs.Corruptf("row of a group of errors makes no sense")
			}
			g, err := decodeErrorGroup(value)
			if err != nil || q.Kind != "" && g.Kind != q.Kind || q.Span > 0 && g.Last.Add(q.Span) < now {
				return true, err
			}
			g.Queue, g.Fingerprint = l.name, core.Fingerprint(row.Fingerprint)
			moveTrend(&g.Trend, hourOf(now)-hourOf(g.Last))
			page.Groups = append(page.Groups, g)
			return true, nil
		})
		if err != nil {
			return page, err
		}
	}
	page.Cut()
	return page, nil
}

// numberedQueue is a queue by its number and name. 0: the one that has the name now.
type numberedQueue struct {
	number uint32
	name   string
}

// queuesWithErrors reads which queues have groups of errors, also removed ones. more says that there are further ones.
func queuesWithErrors(v core.View, p core.Partition) (list []numberedQueue, more bool, err error) {
	from, to := keys.ErrorsRange(p)
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		if more = len(list) == MaxInspected; more {
			return false, nil
		}
		row, ok := keys.DecodeQueue(key)
		if !ok {
			return false, errs.Corruptf("row of the groups of errors makes no sense")
		}
		name, _, err := decodeErrors(value)
		list = append(list, numberedQueue{row.Queue, name})
		return true, err
	})
	return list, more, err
}
