package queue

import (
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/keys"
)

// cronRow checks a row of a cron: it has a template, and its last runs, at most as many as are remembered.
func (a *audit) cronRow(row keys.QueueRow, value []byte) error {
	switch row.Record {
	case keys.RecordCron:
		c, err := decodeCron(value)
		if err != nil {
			return err
		}
		a.cronRows++
		a.cronRuns += int(min(c.runs, core.MaxCronRuns))
		if c.waiting.run > c.runs || c.next != 0 && c.next <= c.anchor {
			a.find("cron %q: run %d of %d waits, slot %d comes after %d", row.Name, c.waiting.run, c.runs, c.next, c.anchor)
		}
		return a.has(keys.AppendCronTemplate(nil, a.p, row.Name), "template of cron %q", row.Name)
	case keys.RecordCronTemplate:
		a.templateRows++
		_, err := core.DecodeTemplate(value)
		return err
	}
	a.runRows++
	c, err := cronOfRun(a, row)
	if err != nil {
		return err
	}
	if row.Run == 0 || row.Run > c.runs || row.Run+core.MaxCronRuns <= c.runs {
		a.find("cron %q had %d runs, and run %d is remembered", row.Name, c.runs, row.Run)
	}
	_, err = decodeCronRun(value)
	return err
}

// cronOfRun reads the cron of a run; one that is missing has had none.
func cronOfRun(a *audit, row keys.QueueRow) (cronRow, error) {
	value, ok, err := a.v.Get(keys.AppendCron(nil, a.p, row.Name))
	if err != nil || !ok {
		return cronRow{}, err
	}
	return decodeCron(value)
}
