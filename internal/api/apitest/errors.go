package apitest

import (
	"context"

	"github.com/millrace/millrace/internal/core"
)

// Errors shows a group of errors of each partition, which is the same one.
func (n *Node) Errors(_ context.Context, p core.Partition, q core.ErrorQuery) (core.ErrorPage, core.At, error) {
	n.step()
	n.reach(p)
	id, err := core.ParseTaskID(ID(1))
	g := core.ErrorGroup{
		Queue: "mail", Fingerprint: 7, Kind: "mail", Code: "E", Message: "m", Count: 2, First: 1000, Last: 2000, Sample: []core.TaskID{id},
	}
	g.Trend[core.ErrorHours-1] = 2
	if q.Queue != "" && q.Queue != g.Queue {
		return core.ErrorPage{}, core.At{}, err
	}
	return core.ErrorPage{Groups: []core.ErrorGroup{g}}, core.At{}, err
}
