import { Page } from "../parts/basic";

export function Repo() {
	return (
		<Page title="Repo" name="Repo">
			{null}
		</Page>
	);
}
