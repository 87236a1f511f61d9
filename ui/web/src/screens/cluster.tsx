import { Page } from "../parts/basic";

export function Cluster() {
	return (
		<Page title="Cluster" name="Cluster">
			{null}
		</Page>
	);
}
