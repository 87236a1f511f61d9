import { Page } from "../parts/basic";

export function Queue() {
	return (
		<Page title="Queue" name="Queue">
			{null}
		</Page>
	);
}
