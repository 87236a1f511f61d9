import { Page } from "../parts/basic";

export function Bulk() {
	return (
		<Page title="Bulk" name="Bulk">
			{null}
		</Page>
	);
}
