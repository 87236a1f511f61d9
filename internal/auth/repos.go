package auth

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const (
	maxRepos     = 64  // globs of a token: each request on a repository looks at all of them
	maxRepoBytes = 256 // of one
)

// ReachesRepo reports whether the token's scopes of refs count for a repository. A token that names none reaches all of its
// tenant.
func (p *Principal) ReachesRepo(namespace, repo string) bool {
	return len(p.Repos) == 0 || slices.ContainsFunc(p.Repos, func(glob string) bool {
		ok, err := path.Match(glob, namespace+"/"+repo)
		return ok && err == nil // it was read without an error
	})
}

// checkRepos holds globs to the form namespace/repository, in which * is any text without a slash.
func checkRepos(globs []string) error {
	if len(globs) > maxRepos {
		return fmt.Errorf("repos: %d globs are more than %d", len(globs), maxRepos)
	}
	for _, glob := range globs {
		if _, err := path.Match(glob, ""); err != nil || strings.Count(glob, "/") != 1 || len(glob) > maxRepoBytes {
			return fmt.Errorf("repos: %q is not of the form namespace/repository, with * for any text", glob)
		}
	}
	return nil
}
