import { Page } from "../parts/basic";

export function Keyspaces() {
	return (
		<Page title="Keyspaces" name="Keyspaces">
			{null}
		</Page>
	);
}
