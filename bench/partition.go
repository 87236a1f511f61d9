package bench

import (
	"context"
	"fmt"
)

// A row of several shards has a namespace of its own, with one partition per shard, so that every
// shard has work. The default namespace has one partition and would use one shard.
const partitioned = "bench"

// namespaceOf is the namespace of a row's tasks on servers that the bench starts for it.
func namespaceOf(s Shape) string {
	if s.Shards > 1 {
		return partitioned
	}
	return "default"
}

// partition makes the namespace of a row of several shards. It warns when its partitions lie on
// fewer shards than the row has: what is measured then is not what the row says.
func (o *oneRun) partition(ctx context.Context) error {
	n := o.spec.shape.Shards
	if n <= 1 {
		return nil
	}
	if _, err := o.client().CreateNamespace(ctx, n); err != nil {
		return fmt.Errorf("make a namespace of %d partitions: %w", n, err)
	}
	made, err := o.client().Namespace(ctx)
	if err != nil {
		return fmt.Errorf("ask where the partitions lie: %w", err)
	}
	shards := map[int]bool{}
	for _, p := range made.Partitions {
		shards[p.Shard] = true
	}
	if used := len(shards); used < n {
		o.run.Warnings = append(o.run.Warnings, Warning{
			"uneven_shards", fmt.Sprintf("the %d partitions of the namespace lie on %d of the servers' %d shards", n, used, n), float64(used),
		})
	}
	return nil
}
