import { Page } from "../parts/basic";

export function Queues() {
	return (
		<Page title="Queues" name="Queues">
			{null}
		</Page>
	);
}
