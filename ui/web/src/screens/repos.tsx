import { Page } from "../parts/basic";

export function Repos() {
	return (
		<Page title="Repos" name="Repos">
			{null}
		</Page>
	);
}
