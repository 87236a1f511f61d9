import { Page } from "../parts/basic";

export function Workers() {
	return (
		<Page title="Workers" name="Workers">
			{null}
		</Page>
	);
}
