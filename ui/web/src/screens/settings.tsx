import { Page } from "../parts/basic";

export function Settings() {
	return (
		<Page title="Settings" name="Settings">
			{null}
		</Page>
	);
}
