import { Page } from "../parts/basic";

export function SearchPage() {
	return (
		<Page title="SearchPage" name="SearchPage">
			{null}
		</Page>
	);
}
