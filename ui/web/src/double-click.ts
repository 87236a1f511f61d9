/** What a click falls on: the page, or a dialog or a menu over it. */
interface Place {
	over: Element | null;
	path: string;
}

function placeOf(e: MouseEvent): Place {
	const over = e.target instanceof Element ? e.target.closest("dialog, [popover]") : null;
	return { over, path: location.pathname };
}

/**
 * keepDoubleClicks lets the second click of a double click do something only where the first one did: a first click that closes a dialog,
 * opens one or leads to another page has changed what lies under the pointer, and the second one is not meant for that.
 */
export function keepDoubleClicks(): void {
	let first: Place | undefined;
	addEventListener(
		"click",
		(e) => {
			// Keys click with 0, and a further click of the same sequence counts on from 1.
			const now = placeOf(e);
			if (e.detail > 1 && first && (first.over !== now.over || first.path !== now.path)) {
				e.preventDefault();
				e.stopImmediatePropagation();
				return;
			}
			if (e.detail <= 1) first = now;
		},
		{ capture: true },
	);
}
