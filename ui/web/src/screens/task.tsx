import { Page } from "../parts/basic";

export function Task() {
	return (
		<Page title="Task" name="Task">
			{null}
		</Page>
	);
}
