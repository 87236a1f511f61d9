package node

import (
	"cmp"
	"context"
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/machine/commit"
	"github.com/millrace/millrace/internal/machine/refs"
)

// RepoSize is how much one repository holds.
type RepoSize struct {
	Tenant, Namespace, Name string
	core.RepoStats
}

// refWeight is the weight of a ref in bytes, compared with bytes of packs: about what its row and log take.
const refWeight = 256

// weight orders repositories by what they take.
func (r *RepoSize) weight() int64 { return r.Bytes + refWeight*r.Refs }

// directoryPage is how many rows of the directory, or repositories, are read while Apply waits.
const directoryPage = 500

// LargestRepos returns the k repositories that take most, the largest first, as this node has applied them. It reads all
// repositories, a page at a time.
func (n *Node) LargestRepos(ctx context.Context, k int) (largest []RepoSize, err error) {
	keep := func() {
		slices.SortFunc(largest, func(a, b RepoSize) int {
			return cmp.Or(cmp.Compare(b.weight(), a.weight()), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		largest = largest[:min(k, len(largest))]
	}
	err = n.eachNamespace(func(tenant string, ns core.NamespaceInfo) error {
		for _, at := range ns.Partitions {
			for after := ""; ; {
				if err := ctx.Err(); err != nil {
					return err
				}
				var page []core.RepoInfo
				err := n.shards[at.Shard].store.View(func(v core.View) (err error) {
					page, err = refs.List(v, at.Partition, after, directoryPage)
					return err
				})
				if err != nil {
					return err
				}
				for i := range page {
					largest = append(largest, RepoSize{tenant, ns.Name, page[i].Name, page[i].Stats})
				}
				keep()
				if len(page) < directoryPage {
					break
				}
				after = page[len(page)-1].Name
			}
		}
		return nil
	})
	return largest, err
}

// eachNamespace calls fn for each namespace in this node's copy of the directory.
func (n *Node) eachNamespace(fn func(tenant string, ns core.NamespaceInfo) error) error {
	for afterTenant := ""; ; {
		// Names of the tenant, of its namespace and of the repository.
		var tenants []commit.Tenant
		err := n.shards[0].store.View(func(v core.View) (err error) {
			tenants, err = commit.Tenants(v, afterTenant, directoryPage)
			return err
		})
		if err != nil {
			return err
		}
		for _, t := range tenants {
			for after := ""; ; {
				var page []core.NamespaceInfo
				err := n.shards[0].store.View(func(v core.View) (err error) {
					page, err = commit.Namespaces(v, t.Name, after, directoryPage)
					return err
				})
				if err != nil {
					return err
				}
				for _, ns := range page {
					if err := fn(t.Name, ns); err != nil {
						return err
					}
				}
				if len(page) < directoryPage {
					break
				}
				after = page[len(page)-1].Name
			}
		}
		if len(tenants) < directoryPage {
			return nil
		}
		afterTenant = tenants[len(tenants)-1].Name
	}
}
