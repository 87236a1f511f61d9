package millrace

import (
	"context"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/sdk/go/internal/wire"
)

// RepoInfo tells what a repository is.
type RepoInfo struct {
	// Name may be given to another repository after a deletion; ID never is.
	Name string
	ID   string
	// Tag is the one that it was created with; empty: its name places it.
	Tag           string
	DefaultBranch string // empty when HEAD is detached
	Config        RepoConfig
	// CreatedAt and CreatedBy say when and by whom it was made: the subject of the token.
	CreatedAt time.Time
	CreatedBy string
	DeletedAt time.Time // zero: it is not deleted
	Rev       uint64    // change counter
	// Refs and Packs count what there is.
	Refs  int64
	Packs int64
	Bytes int64 // of all packs
}

// repoInfoOf reads what the contract says of a repository.
func repoInfoOf(r *millracev1.Repo) RepoInfo {
	out := RepoInfo{
		Name: r.GetName(), ID: r.GetId(), Tag: r.GetTag(), DefaultBranch: r.GetDefaultBranch(), Config: repoConfigOf(r.GetConfig()),
		CreatedAt: r.GetCreatedAt().AsTime(), CreatedBy: r.GetCreatedBy(), Rev: r.GetRev(), Refs: r.GetRefs(),
		Packs: r.GetPacks(), Bytes: r.GetBytes(),
	}
	if r.GetDeletedAt() != nil {
		out.DeletedAt = r.GetDeletedAt().AsTime()
	}
	return out
}

// RepoSettings is what can be said of a repository when it is made, or changed.
type RepoSettings struct {
	DefaultBranch string      // main; of a change: HEAD points to it from now on
	Config        *RepoConfig // nil: the defaults, of a change too: it replaces all settings
	IfVersion     *uint64     // of a change: refused with ErrPrecondition unless the settings are at this version
}

// Create makes the repository.
func (r Repo) Create(ctx context.Context, settings RepoSettings) (RepoInfo, error) {
	req := &millracev1.CreateRepoRequest{
		Name: r.name, Tag: r.tag, DefaultBranch: settings.DefaultBranch, Config: settings.Config.message(), RequestId: wire.Random16(),
	}
	var resp *millracev1.CreateRepoResponse
	err := r.c.change(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.CreateRepo(ctx, req)
		return err
	})
	if err != nil {
		return RepoInfo{}, err
	}
	return repoInfoOf(resp.GetRepo()), nil
}

// Info reads what the repository is.
func (r Repo) Info(ctx context.Context, opts ...ReadOption) (RepoInfo, error) {
	req := &millracev1.GetRepoRequest{Name: r.name, Tag: r.tag, MinIndex: readOptionsOf(opts).minIndex}
	var resp *millracev1.GetRepoResponse
	err := r.c.read(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.GetRepo(ctx, req)
		return err
	})
	if err != nil {
		return RepoInfo{}, err
	}
	return repoInfoOf(resp.GetRepo()), nil
}

// Set replaces the settings and returns their version.
func (r Repo) Set(ctx context.Context, settings RepoSettings) (version uint64, err error) {
	req := &millracev1.UpdateRepoRequest{
		Name: r.name, Tag: r.tag, DefaultBranch: settings.DefaultBranch, Config: settings.Config.message(), IfVersion: settings.IfVersion,
	}
	var resp *millracev1.UpdateRepoResponse
	err = r.c.change(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.UpdateRepo(ctx, req)
		return err
	})
	return resp.GetVersion(), err
}

// Delete frees the repository's name and returns its id, by which it can be brought back for 7 days.
func (r Repo) Delete(ctx context.Context) (id string, err error) {
	var resp *millracev1.DeleteRepoResponse
	err = r.c.change(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.DeleteRepo(ctx, &millracev1.DeleteRepoRequest{Name: r.name, Tag: r.tag})
		return err
	})
	return resp.GetId(), err
}

// Undelete brings a deleted repository back: that of the id, or with an empty id the one of the name that was deleted
// last.
func (r Repo) Undelete(ctx context.Context, id string) (string, error) {
	var resp *millracev1.UndeleteRepoResponse
	err := r.c.change(ctx, r.place(), func(ctx context.Context) (err error) {
		resp, err = r.c.refs.UndeleteRepo(ctx, &millracev1.UndeleteRepoRequest{Name: r.name, Tag: r.tag, Id: id})
		return err
	})
	return resp.GetId(), err
}

// RepoListOption changes which repositories are listed.
type RepoListOption interface {
	listRepos(r *millracev1.ListReposRequest)
}

// repoListFunc is a RepoListOption that fills in the request.
type repoListFunc func(r *millracev1.ListReposRequest)

func (f repoListFunc) listRepos(r *millracev1.ListReposRequest) { f(r) }

// OnlyDeleted lists the repositories that are deleted and can be restored with Repo.Undelete, instead of the others.
func OnlyDeleted() RepoListOption {
	return repoListFunc(func(r *millracev1.ListReposRequest) { r.Deleted = true })
}

// Repos lists all repositories of the namespace by name; deleted ones only with OnlyDeleted.
func (c *Client) Repos(ctx context.Context, opts ...RepoListOption) ([]RepoInfo, error) {
	var out []RepoInfo
	req := &millracev1.ListReposRequest{Limit: 1000}
	for _, o := range opts {
		o.listRepos(req)
	}
	for {
		var resp *millracev1.ListReposResponse
		err := c.read(ctx, 0, func(ctx context.Context) (err error) {
			resp, err = c.refs.ListRepos(ctx, req)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, r := range resp.GetRepos() {
			out = append(out, repoInfoOf(r))
		}
		if req.Cursor = resp.GetCursor(); req.Cursor == "" {
			return out, nil
		}
	}
}
