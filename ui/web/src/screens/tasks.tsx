import { Page } from "../parts/basic";

export function Tasks() {
	return (
		<Page title="Tasks" name="Tasks">
			{null}
		</Page>
	);
}
