package millrace

import (
	"context"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/place"
)

// NewID makes an id for a task that is added with opts, of which a tag or a unique key say its partition: the task has it
// as it is. It waits for the server when the client has not spoken to it yet.
func (c *Client) NewID(ctx context.Context, opts ...AddOption) (string, error) {
	n, f := c.calls.Learn(ctx)
	if f != nil {
		return "", errorOf(f)
	}
	spec := new(millracev1.TaskSpec)
	for _, o := range opts {
		o.task(spec)
	}
	spec.Id = ""
	if _, f := (place.Space{Partitions: n}).Task(spec, -1); f != nil {
		return "", errorOf(f)
	}
	return spec.Id, nil
}

// NewID makes a task id for the ID option: an Add repeated under the same id is answered, not done again. In a namespace
// of several partitions Add fills in which one it is, so that the handle has another id; Client.NewID makes one that stays.
func NewID() string { return place.NewID() }

// anywhere is the partition of a call that is about none.
const anywhere = -1
